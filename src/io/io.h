#pragma once
#include "core/core.h"

/* ======================================================================
   >>io       safetensors, npy, idx
   A damaged file is an error that names the file, the byte (of a JSON file also line and column) and the reason, and that changes
   nothing; so is a file of another format, which tn_foreign_format names. On POSIX a pipe or a device is not opened for
   reading. Tensors that are read are owned; floats get the context's dtype, integers I32 if all of them fit. A finite double that
   is too large for a float is an error, too.
   _load and _save take a path; _read and _write take any source or sink, in the same format.
   A save writes PATH.tn1.tmp and renames it to PATH once it is complete: a save that fails leaves the old file as it was,
   and removes the new one. Before the rename the data is synced to the disk, and after it the folder (fsync, on macOS
   F_FULLFSYNC, on Windows _commit), so that PATH holds the old file or the new one, whole, even after a power cut. If
   syncing the data fails, the save fails and the old file stays. If only syncing the folder fails, the save also reports an
   error, but the new file is already in place. no_sync in a tn_sink leaves both out: faster, and still safe when the process
   dies, but a power cut may then lose old and new file alike. Systems that are neither POSIX nor Windows do not sync.
   A process that is killed during a save leaves its temporary file behind. The next save to the same PATH removes it if
   its number is at most 8, otherwise a later one does. A save holds a lock on its temporary file (flock), which ends with
   the process, so the file of a save that is still running is not touched. The second of two saves at the same time uses
   PATH.tn2.tmp, and so on. Where locks are missing (some network file systems; systems other than Linux, macOS, the BSDs
   and Windows) old temporary files stay, until the 99 names up to PATH.tn99.tmp are in use: then saves fail with a message
   that says so, and you have to remove the files that no program is writing. Files with these names belong to the library;
   it touches no others. Where each machine has its own locks (network file systems mounted without shared locks), do not
   save to the same PATH from two machines at the same time: one may remove the temporary file of the other. That save fails
   with a message, unless the file is replaced just before the rename. On Windows a save can fail, but not damage a file, if
   another one to the same PATH begins between the closing and the renaming of its temporary file.
   On POSIX the new file has the permissions of the one that it replaces, and where that is allowed its owner and its group.
   A symbolic link is replaced, not followed. Devices (/dev/...) and, on POSIX, pipes with a name are written
   directly.
   ====================================================================== */

/* A source of bytes: a path, memory, or a function that copies `bytes` bytes at `offset` to dst (false: it could not).
   Memory and user must outlive what reads from them. name is used in messages; NULL: the path, or the kind of source. */
typedef bool (*tn_fetch_fn)(void *user, uint64_t offset, void *dst, size_t bytes);
typedef struct tn_source {
    const char *path;
    const void *data;
    uint64_t    bytes;                  /* of the memory, or of all that fetch can read  */
    tn_fetch_fn fetch;
    void       *user;
    const char *name;
} tn_source;

/* A sink for bytes: a path, memory, or a function that gets one piece after the other (false: it could not). */
typedef bool (*tn_store_fn)(void *user, const void *src, size_t bytes);
typedef struct tn_sink {
    const char *path;
    void       *data;                   /* NULL: the bytes are only counted                */
    size_t      bytes;                  /* size of data                                    */
    size_t     *used;                   /* becomes the length, also if that is larger      */
    tn_store_fn store;
    void       *user;
    const char *name;
    bool        no_sync;                /* of a path: faster, but not safe against a power cut  */
} tn_sink;

/* Says what a file is whose first bytes these are, and how it is converted, if it is of a format that is never read here: a Git
   LFS pointer, a page of a server, a zip archive (of torch.save and numpy.savez), a pickle, GGUF, HDF5, or compressed. Returns
   a constant string, or NULL. 128 bytes are enough. */
TN_API const char *tn_foreign_format(const void *first, size_t bytes);

#ifndef TN_NO_STDIO
TN_API tn_source tn_source_path(const char *path);                                 /* reads a file            */
TN_API tn_sink   tn_sink_path(const char *path);                                   /* writes a file           */
#endif
TN_API tn_source tn_source_memory(const void *data, size_t bytes);                 /* reads memory            */
TN_API tn_source tn_source_calls(tn_fetch_fn fetch, void *user, uint64_t bytes);   /* reads by calling fetch  */
TN_API tn_sink   tn_sink_memory(void *data, size_t bytes, size_t *used);           /* writes memory           */
TN_API tn_sink   tn_sink_calls(tn_store_fn store, void *user);                     /* writes by calling store */

#ifndef TN_NO_STDIO
/* ---- files in a program's own format ------------------------------------ >>io-file
   A file that is written piece by piece, and appears whole or not at all, as the files of a save do. */
typedef struct tn_writer tn_writer;
TN_API tn_writer *tn_writer_open(tn_ctx *ctx, const char *path);                    /* NULL on error               */
/* Appends bytes. After an error it does nothing, and returns that error. */
TN_API tn_status tn_writer_write(tn_writer *writer, const void *src, size_t bytes);
/* Ends the file, which gets its name if keep is set and nothing failed; otherwise what was written is removed, unless it went
   to a device. Without this call the context removes it when it is destroyed. */
TN_API tn_status tn_writer_close(tn_writer *writer, bool keep);
#endif

/* ---- safetensors: named tensors and a few strings ----------------------- >>io-safetensors
   Opening a file reads and checks its header; a tensor's bytes are read by tn_safetensors_read. Large models are in several
   files: the path of their model.safetensors.index.json (any path that ends with ".json") opens all of them as one, which
   has no metadata. https://github.com/huggingface/safetensors */
typedef struct tn_safetensors tn_safetensors;
typedef struct tn_safetensors_entry {
    const char *name;                   /* UTF-8                                                 */
    const char *dtype;                  /* as the file spells it: "F32", "BF16", "F8_E4M3"       */
    int         rank;
    int64_t     shape[TN_MAX_RANK];
    uint64_t    offset, bytes;          /* of its data in the file                               */
    int64_t     part;                   /* number of its file, if an index was opened; else 0    */
    int64_t     axes;                   /* of more than TN_MAX_RANK axes, shape is [number of elements], and rank 1 */
} tn_safetensors_entry;

/* Opens a safetensors file, or those of an index. It is closed by _close or with the context; NULL on error. */
TN_API tn_safetensors *tn_safetensors_open(tn_ctx *ctx, tn_source source);
TN_API void            tn_safetensors_close(tn_safetensors *file);                  /* closes the file               */
TN_API int64_t         tn_safetensors_count(const tn_safetensors *file);            /* number of tensors             */
TN_API const tn_safetensors_entry *tn_safetensors_at(const tn_safetensors *file, int64_t i);   /* in order of the data  */
/* NULL if there is none. If no tensor has the name, but the metadata maps it to the name of one (as safetensors' save_model does
   for shared tensors), that tensor is returned. */
TN_API const tn_safetensors_entry *tn_safetensors_find(const tn_safetensors *file, const char *name);
TN_API const char     *tn_safetensors_metadata(const tn_safetensors *file, const char *key);   /* its value, or NULL     */
/* Reads one tensor. F64 F32 F16 BF16 become the context's dtype, I64 ... I8, U64 ... U8 and BOOL become I32; any other dtype
   is an error that names it. */
TN_API tn_tensor      *tn_safetensors_read(tn_safetensors *file, const char *name);
/* The same as [number of elements]: a tensor of more axes than TN_MAX_RANK can be read in no other way. */
TN_API tn_tensor      *tn_safetensors_read_flat(tn_safetensors *file, const char *name);
/* Reads a tensor's bytes unchanged, of any dtype; `bytes` must be the entry's. */
TN_API tn_status       tn_safetensors_read_bytes(tn_safetensors *file, const char *name, void *dst, size_t bytes);

/* Whether two tensors of a file have the same dtype, shape (of more than TN_MAX_RANK axes their number and that of
   the elements) and bits; also false if one is not there or cannot be read, which is an error. */
TN_API bool            tn_safetensors_equal(tn_safetensors *file, const char *a, const char *b);

typedef struct tn_named_tensor { const char *name; const tn_tensor *tensor; } tn_named_tensor;    /* as files have them  */
typedef struct tn_metadata     { const char *key, *value; } tn_metadata;                          /* a line of metadata  */

/* Writes tensors in their own dtypes, wide ones first, so that all are aligned. Names must be different. */
TN_API tn_status tn_safetensors_write(tn_ctx *ctx, tn_sink sink, const tn_named_tensor *tensors, int64_t count,
                                      const tn_metadata *notes, int64_t note_count);

/* Whether a file of parameters may hold other tensors as well. */
typedef enum tn_params_match {
    TN_MATCH_ALL = 0,                   /* no: another tensor is an error */
    TN_MATCH_IGNORE_EXTRA
} tn_params_match;
/* Reads all parameters by name from a safetensors file, or none on error (unless a device fails halfway): each must be in
   the file with its shape. */
TN_API tn_status tn_params_read(tn_params *params, tn_source source, tn_params_match match);
/* Writes all parameters under their names to a safetensors file. */
TN_API tn_status tn_params_write(const tn_params *params, tn_sink sink, const tn_metadata *notes, int64_t note_count);
#ifndef TN_NO_STDIO
TN_API tn_status tn_params_load(tn_params *params, const char *path);           /* reads a file, TN_MATCH_ALL   */
TN_API tn_status tn_params_save(const tn_params *params, const char *path);     /* writes a file without notes  */
#endif

#ifndef TN_NO_TRAINING
/* ---- checkpoints: resume a run with bit-identical results --------------- >>io-checkpoints */
/* Writes a checkpoint: a safetensors file with the parameters under their names (tn_params_read accepts it with
   TN_MATCH_IGNORE_EXTRA), the optimiser's moments as optim.m.NAME and optim.v.NAME, its counters as optim.scalars, the
   random clock as optim.clock; notes that begin with "tensornet." for steps, seed and desc; and at its end optim.checksum,
   U32 [2], the XXH64 of all bytes before it, low word first. `notes` are the caller's, for example how far the data was
   read; tn_safetensors_metadata returns them. Write after a step: gradients that wait for one are not in the file.
   With share_moments all processes have to call it: the first writes, and the others, whose sinks and notes are not used, send
   it their moments, piece by piece. An error of one of them is an error of all. The file is as if one process had written it. */
TN_API tn_status tn_checkpoint_write(const tn_optim *optim, tn_sink sink, const tn_metadata *notes, int64_t note_count);
/* Reads a checkpoint into an optimiser created as the first one was, over the same parameters, equally frozen and marked:
   every later step is then bit-identical. On error nothing changes (unless a device fails halfway). Gradients become zero.
   TN_ERR_FORMAT: not a checkpoint, or damaged: for example, its checksum differs (files of versions that wrote none are
   accepted).
   TN_ERR_ARG, TN_ERR_SHAPE: another kind of optimiser or another model. TN_ERR_DTYPE: a context of another dtype. If numbers
   of the desc differ (such as lr), the program's are used, with a warning in the log for each; numbers that are not finite
   are accepted with a warning, too. With share_moments each process keeps only its part of the moments, whatever their number
   was when the file was written. */
TN_API tn_status tn_checkpoint_read(tn_optim *optim, tn_source source);
/* Reads a checkpoint without using it: TN_ERR_FORMAT if the file is cut off or damaged. For example, to find the newest of
   several that is whole; as after any error, each failure stays in the context until tn_ctx_clear_error. TN_OK for other
   safetensors files, for an index (.json) and for checkpoints of versions that wrote no checksum means only that the header
   is right. */
TN_API tn_status tn_checkpoint_check(tn_ctx *ctx, tn_source source);
#endif /* TN_NO_TRAINING */

/* ---- npy: one NumPy array ----------------------------------------------- >>io-npy
   Versions 1 to 3 can be read, with f2 f4 f8, i1 ... i8, u1 ... u8 and b1, in either byte order, row- or column-major.
   Objects are never unpickled. Version 1 is written; BF16 becomes f4, because NumPy has no such type. */
TN_API tn_tensor *tn_npy_read(tn_ctx *ctx, tn_source source);                  /* reads an array; NULL on error  */
TN_API tn_tensor *tn_npy_read_flat(tn_ctx *ctx, tn_source source);             /* as [elements], any axes, C's order */
TN_API tn_status  tn_npy_write(const tn_tensor *t, tn_sink sink);              /* writes one array               */
#ifndef TN_NO_STDIO
TN_API tn_tensor *tn_npy_load(tn_ctx *ctx, const char *path);                  /* reads a .npy file              */
TN_API tn_status  tn_npy_save(const tn_tensor *t, const char *path);           /* writes a .npy file             */
#endif

/* ---- idx: the format of MNIST ------------------------------------------- >>io-idx */
/* Reads an idx array. With scale 0 integers become I32 (labels), and floats are not scaled. Else all become floats of the
   context's dtype, times scale: tn_idx_load(ctx, "train-images-idx3-ubyte", 1 / 255.0) is [60000,28,28] in [0,1]. A batch
   of shuffled rows is tn_embed(ctx, tn_reshape_2d(images, 60000, 784), ids). NULL on error. */
TN_API tn_tensor *tn_idx_read(tn_ctx *ctx, tn_source source, double scale);
#ifndef TN_NO_STDIO
TN_API tn_tensor *tn_idx_load(tn_ctx *ctx, const char *path, double scale);    /* the same from a file           */
#endif
