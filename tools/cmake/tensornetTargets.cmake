# The targets, for FetchContent and add_subdirectory (CMakeLists.txt) as well as for find_package (tensornetConfig.cmake).
# Before it is included, tensornet_header is the folder of tensornet.h, tensornet_source that of tensornet.c, tensornet_cuda
# that of tensornet_cuda.cu.
#
#   tensornet::tensornet        the header; one file of yours defines TENSORNET_IMPLEMENTATION
#   tensornet::implementation   the same, with the implementation compiled as a static library; none of yours defines it
#   tensornet::cuda             besides either of them: the CUDA backend, tn_cuda_backend()
include_guard(GLOBAL)

add_library(tensornet::tensornet INTERFACE IMPORTED GLOBAL)
set_target_properties(tensornet::tensornet PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${tensornet_header}")
if(UNIX)
  set_target_properties(tensornet::tensornet PROPERTIES INTERFACE_LINK_LIBRARIES m)
endif()

# -O2 even where nobody asks for it: without optimisation the library is seven to ten times slower.
macro(tensornet_add_implementation)
  add_library(tensornet_implementation STATIC EXCLUDE_FROM_ALL "${tensornet_source}/tensornet.c")
  add_library(tensornet::implementation ALIAS tensornet_implementation)
  target_link_libraries(tensornet_implementation PUBLIC tensornet::tensornet)
  set_target_properties(tensornet_implementation PROPERTIES OUTPUT_NAME tensornet POSITION_INDEPENDENT_CODE ON)
  target_compile_features(tensornet_implementation PRIVATE c_std_99)
  if(NOT MSVC)
    target_compile_options(tensornet_implementation PRIVATE $<$<OR:$<CONFIG:Debug>,$<CONFIG:>>:-O2>)
  endif()
  if(TENSORNET_OPENMP)
    find_package(OpenMP QUIET COMPONENTS C)
    if(OpenMP_C_FOUND)
      target_link_libraries(tensornet_implementation PRIVATE OpenMP::OpenMP_C)
    endif()
  endif()
  if(TENSORNET_BLAS)
    find_package(BLAS REQUIRED)
    find_package(LAPACK REQUIRED)
    target_compile_definitions(tensornet_implementation PRIVATE TN_USE_BLAS)
    target_link_libraries(tensornet_implementation PRIVATE LAPACK::LAPACK BLAS::BLAS)
  endif()
endmacro()

# tensornet_cuda.cu needs sm_80. What CMake or nvcc takes by default may be older; then it is what the Makefile takes.
macro(tensornet_add_cuda)
  add_library(tensornet_cuda STATIC EXCLUDE_FROM_ALL "${tensornet_cuda}/tensornet_cuda.cu")
  add_library(tensornet::cuda ALIAS tensornet_cuda)
  target_link_libraries(tensornet_cuda PUBLIC tensornet::tensornet PRIVATE ${CMAKE_DL_LIBS})
  target_compile_features(tensornet_cuda PRIVATE cuda_std_17)
  set_target_properties(tensornet_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
  foreach(tensornet_architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(tensornet_architecture MATCHES "^[0-9]+" AND CMAKE_MATCH_0 LESS 80)
      message(STATUS "tensornet: CMAKE_CUDA_ARCHITECTURES has ${tensornet_architecture}, expected 80 or more; using 80;90")
      set_target_properties(tensornet_cuda PROPERTIES CUDA_ARCHITECTURES "80;90")
    endif()
  endforeach()
endmacro()
