# install_debug.cmake: debug information of what is installed, in files of its own, which gdb and perf find beside the
# stripped ones: lib/.debug/libgsel.so.0.1.0.debug. Run by `make install-debug` behind `make install`.
#   -D BUILD=build tree  -D INSTALLED=what was installed, one path a line, as cmake writes it  -D OBJCOPY=objcopy
file(STRINGS ${INSTALLED} installed)
set(n 0)
foreach(path ${installed})
  set(target "$ENV{DESTDIR}${path}")
  if(IS_SYMLINK ${target} OR NOT path MATCHES "(\\.so[.0-9]*|/bin/[^/]+)$")
    continue()
  endif()
  get_filename_component(name ${path} NAME)
  get_filename_component(folder ${target} DIRECTORY)
  file(GLOB_RECURSE built ${BUILD}/bin/${name} ${BUILD}/lib/${name})
  list(GET built 0 built)
  file(MAKE_DIRECTORY ${folder}/.debug)
  foreach(arguments "--only-keep-debug;${built};${folder}/.debug/${name}.debug"
                    "--remove-section=.gnu_debuglink;--add-gnu-debuglink=${folder}/.debug/${name}.debug;${target}")
    execute_process(COMMAND ${OBJCOPY} ${arguments} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  math(EXPR n "${n} + 1")
endforeach()
message("gsel: installed the debug information of ${n} files, in .debug beside them")
