# For Windows from Linux: cmake -DCMAKE_TOOLCHAIN_FILE=tools/cmake/mingw-w64.cmake. Programs need no DLL of the compiler's.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)

# OpenMP's libraries, too, are the static ones.
foreach(library gomp pthread)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=lib${library}.a
                  OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(OpenMP_${library}_LIBRARY "${file}" CACHE FILEPATH "")
endforeach()
