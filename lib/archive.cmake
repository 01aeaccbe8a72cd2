# Static archives of which a program sees the interface alone: the objects are linked to one, and every name in it but
# those that are kept becomes local, so that a program with another fmt, toml++ or C++ library of its own is not in the
# way, nor gsel in its. Groups that the compiler made for the linker to choose among are resolved here, since a group
# with a local name is still matched by that name. Debug information is left out, as from what is installed.
#   gsel_one_object(<output.o> <file of names to keep> OBJECTS <object>... [ARCHIVES <archive>...] [OBJCOPY <option>...])
# ARCHIVES: of which what the objects need becomes a part
find_program(GSEL_OBJCOPY NAMES ${CMAKE_OBJCOPY} objcopy)
if(NOT DEFINED GSEL_CAN_ARCHIVE)
  execute_process(COMMAND ${CMAKE_LINKER} --help OUTPUT_VARIABLE linker_help ERROR_QUIET)
  if(linker_help MATCHES "--force-group-allocation" AND GSEL_OBJCOPY)
    set(can TRUE)
  else()
    set(can FALSE)
  endif()
  set(GSEL_CAN_ARCHIVE ${can} CACHE INTERNAL "the linker and objcopy make libgsel.a")
endif()
set(GSEL_ARCHIVES ${GSEL_CAN_ARCHIVE})
if(GSEL_SANITIZE)
  set(GSEL_ARCHIVES FALSE)
elseif(NOT GSEL_CAN_ARCHIVE)
  message(STATUS "gsel: libgsel.a is left out: it needs the ld and objcopy of binutils 2.29 or newer")
endif()

function(gsel_one_object output keep)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "OBJECTS;ARCHIVES;OBJCOPY")
  set(objects "$<FILTER:${arg_OBJECTS},INCLUDE,\\.o$>") # without precompiled headers
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${output}.all "${objects}" ${arg_ARCHIVES}
    COMMAND ${GSEL_OBJCOPY} --strip-unneeded ${arg_OBJCOPY} --keep-global-symbols=${keep} ${output}.all ${output}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${output}.all
    DEPENDS "${objects}" ${keep} COMMAND_EXPAND_LISTS VERBATIM)
endfunction()

# gsel_archive(<name> <object>...): lib<name>.a, installed beside the library
function(gsel_archive name)
  set(archive ${CMAKE_ARCHIVE_OUTPUT_DIRECTORY}/lib${name}.a)
  add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} qcsD ${archive} ${ARGN}
    DEPENDS ${ARGN} COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${name}_archive ALL DEPENDS ${archive})
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
