#pragma once
#include "core/core.h"

/* ======================================================================
   >>tensor   make, view, read, write, format
   Tensors are row-major unless a view says otherwise; strides count elements. Programs may read the fields, not
   write them. `data` is the backend's handle: only kernels may dereference it. A tensor that was freed has no context
   that could keep a message: a function that is given nothing else returns NULL, TN_ERR_ARG, -1 or NaN without one.
   ====================================================================== */

/* What a compact copy of a matrix consists of, see >>compact-weights. */
typedef enum tn_weight_kind { TN_WEIGHT_F32 = 0, TN_WEIGHT_BF16, TN_WEIGHT_INT8 } tn_weight_kind;

/* Creates an arena tensor, which lives until tn_ctx_reset or the release of an earlier mark. Its elements are not
   initialised. */
TN_API tn_tensor *tn_tensor_nd(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape);
TN_API tn_tensor *tn_tensor_1d(tn_ctx *ctx, tn_dtype dtype, int64_t n);                             /* [n]     */
TN_API tn_tensor *tn_tensor_2d(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m);                  /* [n,m]   */
TN_API tn_tensor *tn_tensor_3d(tn_ctx *ctx, tn_dtype dtype, int64_t n, int64_t m, int64_t k);       /* [n,m,k] */
/* Creates an arena tensor from numbers of the host, row-major and of type `as`, one per element. They are copied.
   Floats (TN_F32, TN_F64, TN_BF16, or TN_REAL: the context's dtype) become the context's dtype, TN_I32 stays I32. Returns
   NULL if the shape, `as` or a pointer is wrong, and during a graph's capture.
       const float x[6] = {1, 2, 3, 4, 5, 6};
       const int64_t shape[2] = {2, 3};
       tn_tensor *t = tn_tensor_from(ctx, 2, shape, TN_F32, x); */
TN_API tn_tensor *tn_tensor_from(tn_ctx *ctx, int rank, const int64_t *shape, tn_dtype as, const void *numbers);
/* Creates an owned tensor of zeros, which lives until tn_tensor_destroy or the end of the context. */
TN_API tn_tensor *tn_tensor_create(tn_ctx *ctx, tn_dtype dtype, int rank, const int64_t *shape);
/* Frees an owned tensor: while there is a recording, which may need it, only when that ends. Every other tn_..._destroy does
   the same with the tensors that it frees. */
TN_API void       tn_tensor_destroy(tn_tensor *t);
/* Makes an owned, contiguous copy of any tensor or view. */
TN_API tn_tensor *tn_tensor_keep(const tn_tensor *t);

TN_API int64_t    tn_tensor_count(const tn_tensor *t);        /* number of elements; 1 for rank 0              */
TN_API bool       tn_tensor_is_contiguous(const tn_tensor *t);   /* whether it is row-major without gaps          */

/* Copies `count` elements of type `as` from host memory into t, row-major, and converts them. TN_REAL means the context's
   dtype. Floats for an I32 tensor must be integers. Waits for the device, as tn_read and tn_item do. */
TN_API tn_status  tn_write(tn_tensor *t, tn_dtype as, const void *src, int64_t count);
TN_API tn_status  tn_read(const tn_tensor *t, tn_dtype as, void *dst, int64_t count);   /* the same, to the host */
TN_API double     tn_item(const tn_tensor *t);                /* the only element of t; NaN on error           */
/* Copies the numbers of `from` into `to`, which has the same shape. Dtypes and strides may differ; views of one tensor may have
   memory in common. It is not recorded and does not wait. TN_ERR_ARG if a recording still needs the old numbers. */
TN_API tn_status  tn_assign(tn_tensor *to, const tn_tensor *from);

/* Returns a view of [start,stop) along an axis, 0 <= start <= stop <= extent. Views copy nothing: they are arena headers of
   the same bytes. A negative axis counts from the last one, here and in all functions with an axis. */
TN_API tn_tensor *tn_slice(tn_tensor *t, int axis, int64_t start, int64_t stop);
/* Returns a view of every step-th element. With step < 0 it goes down from start to stop + 1; stop may then be -1. */
TN_API tn_tensor *tn_slice_step(tn_tensor *t, int axis, int64_t start, int64_t stop, int64_t step);
TN_API tn_tensor *tn_transpose(tn_tensor *t, int axis_a, int axis_b);        /* a view with two axes swapped   */
/* Returns a view of a contiguous t with another shape; one extent may be -1. */
TN_API tn_tensor *tn_reshape(tn_tensor *t, int rank, const int64_t *shape);
TN_API tn_tensor *tn_reshape_2d(tn_tensor *t, int64_t n, int64_t m);         /* a view with shape [n,m]        */

/* Formats a tensor as NumPy does: nested brackets, aligned columns, long axes shortened with "...". Returns the
   length without the final zero that the whole text needs, as snprintf does; -1 on error. */
TN_API int64_t    tn_tensor_format(const tn_tensor *t, char *dst, size_t bytes);

/* An order of numbers. Equal numbers, 0 and -0 among them, are in the order of their indices. NaN counts as the largest
   number and as the largest magnitude, as in tn_argmax: it comes first, with TN_ORDER_SMALLEST last. */
typedef enum tn_order { TN_ORDER_LARGEST = 0, TN_ORDER_SMALLEST, TN_ORDER_MAGNITUDE } tn_order;

typedef struct tn_tensor_table_desc {
    const char *const *row_names, *const *column_names;     /* one per row or column; NULL: their numbers          */
    int64_t     top;            /* 0: the whole matrix. k: the first k entries in `order`, a line each with their names;
                                   fewer if there are fewer                                                        */
    tn_order    order;          /* of the entries with `top`                                                       */
    bool        each_row;       /* with `top`: one line per row, its first k entries                               */
    bool        symmetric;      /* with `top`: entries (i,j) with i <= j only                                      */
    int         digits;         /* significant digits of a number; 0: 4, at most 17                                */
} tn_tensor_table_desc;

/* Formats a matrix [n,m] or a vector [n] as a table with names, as lines without a newline at the end. Control characters in
   names are written as \n, \t or \xNN. Returns the length without the final zero that the whole text needs, as snprintf
   does; -1 on error. A NULL desc means all defaults. */
TN_API int64_t    tn_tensor_table(const tn_tensor *t, const tn_tensor_table_desc *desc, char *dst, size_t bytes);
