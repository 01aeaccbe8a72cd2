# The kernels of the device "rocm", where there is a hipcc: code for the architectures of GSEL_HIP_ARCHITECTURES, which are
# those of the usual GPUs that this hipcc knows.
find_program(GSEL_HIPCC hipcc HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES bin)
if(GSEL_HIPCC AND NOT DEFINED GSEL_HIP_ARCHITECTURES)
  set(empty ${CMAKE_CURRENT_BINARY_DIR}/empty.hip)
  file(WRITE ${empty} "__attribute__((global)) void empty() {}\n")
  set(known)
  foreach(arch gfx908 gfx90a gfx942 gfx1030 gfx1100 gfx1101 gfx1200 gfx1201)
    execute_process(COMMAND ${GSEL_HIPCC} --genco -x hip --offload-arch=${arch} ${empty} -o ${empty}.out
                    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      list(APPEND known ${arch})
    endif()
  endforeach()
  set(GSEL_HIP_ARCHITECTURES "${known}" CACHE STRING "GPUs of AMD for which the device rocm has kernels, such as gfx90a")
endif()
if(NOT GSEL_HIPCC OR NOT GSEL_HIP_ARCHITECTURES)
  message(STATUS "gsel: there is no hipcc that compiles for a GPU, so the rocm device has no kernels; apt-get install hipcc")
  gsel_gpu_plugin(rocm amd ${CMAKE_CURRENT_BINARY_DIR}/no_image.cc)
  return()
endif()
list(TRANSFORM GSEL_HIP_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE offload)
set(hip_kernels ${CMAKE_CURRENT_BINARY_DIR}/hip_kernels.fatbin)
# No product is contracted into a fused addition, and quotients and roots are rounded: the bits are those of the host's
# kernels.
add_custom_command(OUTPUT ${hip_kernels}
  COMMAND ${GSEL_HIPCC} --genco -x hip -std=c++20 -O3 -ffp-contract=off -fhip-fp32-correctly-rounded-divide-sqrt ${offload}
          -include hip/hip_runtime.h -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/lib ${cuda}/kernels.cu
          -o ${hip_kernels}
  DEPENDS ${cuda}/kernels.cu ${cuda}/kernels.h ${formulas} VERBATIM)
get_filename_component(hip_home ${GSEL_HIPCC} DIRECTORY)
find_program(GSEL_HIPCONFIG hipconfig HINTS ${hip_home})
set(hip_version 0)
if(GSEL_HIPCONFIG)
  execute_process(COMMAND ${GSEL_HIPCONFIG} --version OUTPUT_VARIABLE hip_version ERROR_QUIET)
  if(hip_version MATCHES "^([0-9]+)\\.([0-9]+)")
    math(EXPR hip_version "${CMAKE_MATCH_1} * 10000000 + ${CMAKE_MATCH_2} * 100000") # as in hip_version.h
  endif()
endif()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/hip_image.cc CONTENT "#include \"@cuda@/image.cc\"\n" @ONLY)
gsel_gpu_plugin(rocm amd ${CMAKE_CURRENT_BINARY_DIR}/hip_image.cc)
set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/hip_image.cc PROPERTIES OBJECT_DEPENDS ${hip_kernels}
                            COMPILE_DEFINITIONS "GSEL_CUDA_FATBIN=\"${hip_kernels}\";GSEL_CUDA_TOOLKIT=${hip_version}")
