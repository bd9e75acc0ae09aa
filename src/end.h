#undef TNI_ADAMW_LARGEST
#undef TNI_ALIGN
#undef TNI_ALIVE
#undef TNI_ATTENTION_KINDS
#undef TNI_ATTENTION_LIST
#undef TNI_AVX2
#undef TNI_AVX512
#undef TNI_BF16
#undef TNI_BLAS_WORK
#undef TNI_BLOCKS
#undef TNI_BLOCK_MOST
#undef TNI_CHECKPOINT_FORMAT
#undef TNI_DIGITS
#undef TNI_DIMS
#undef TNI_ENTER
#undef TNI_FLOCK
#undef TNI_FORMAT_EDGE
#undef TNI_ISA512
#undef TNI_ISA_DOT
#undef TNI_ISA_TILE
#undef TNI_JSON_MOST
#undef TNI_LAPACK_MOST
#undef TNI_LAYERS_HEAD
#undef TNI_LEAVE
#undef TNI_MLP_KINDS
#undef TNI_MLP_LIST
#undef TNI_MOST_STEPS
#undef TNI_NEON
#undef TNI_OPENMP
#undef TNI_LARGE_PAGES
#undef TNI_PLAIN_ALL
#undef TNI_PLAIN_BYTES
#undef TNI_POSIX
#undef TNI_PRINTF
#undef TNI_REQUEST
#undef TNI_ROW
#undef TNI_NAMED
#undef TNI_SHAPE
#undef TNI_TEXT
#undef TNI_TILE_BEGIN
#undef TNI_TILE_DOT
#undef TNI_TILE_END
#undef TNI_TILE_LOAD
#undef TNI_TILE_STORE
#undef TNI_TILE_ZERO
#undef TNI_OWN_THREADS
#undef TNI_UNUSED
#undef TNI_TURN
#undef TNI_VALUE
#undef TNI_WASM
#undef TNI_WRITE_COST
#undef TNI_X86
#undef TNI_ZERO
#undef TNI_CHUNK
#undef TNI_TEMPORARIES
#undef TNI_TEMPORARIES_SEEN
#undef TNI_SAFETENSORS_HEADER
#undef TNI_NPY_HEADER
#define TNI_IMPLEMENTED
#endif /* TENSORNET_IMPLEMENTATION */

/*
   tensornet.h and the files around it may be used under either of the two licences below. Take the one that suits you;
   nobody has to be told. The first asks you to keep its notice, the second asks for nothing.

   ------------------------------------------------------------------------------
   Choice A: the MIT License

   Copyright (c) 2026 the authors of tensornet.h

   Permission is hereby granted, free of charge, to any person obtaining a copy
   of this software and associated documentation files (the "Software"), to deal
   in the Software without restriction, including without limitation the rights
   to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
   copies of the Software, and to permit persons to whom the Software is
   furnished to do so, subject to the following conditions:

   The above copyright notice and this permission notice shall be included in all
   copies or substantial portions of the Software.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
   IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
   FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
   AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
   LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
   SOFTWARE.

   ------------------------------------------------------------------------------
   Choice B: public domain (the Unlicense, https://unlicense.org)

   This is free and unencumbered software released into the public domain.

   Anyone is free to copy, modify, publish, use, compile, sell, or distribute
   this software, either in source code form or as a compiled binary, for any
   purpose, commercial or non-commercial, and by any means.

   In jurisdictions that recognize copyright laws, the author or authors of this
   software dedicate any and all copyright interest in the software to the public
   domain. We make this dedication for the benefit of the public at large and to
   the detriment of our heirs and successors. We intend this dedication to be an
   overt act of relinquishment in perpetuity of all present and future rights to
   this software under copyright law.

   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
   IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
   FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
   AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
   ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION
   WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
