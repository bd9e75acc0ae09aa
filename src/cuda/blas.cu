#include "cuda/state.h"

/* ---- cuBLAS -------------------------------------------------------------------------------------------------- >>cuda-blas
   The library is opened at run time, so that a program also runs where it is not installed; only its headers are needed to
   compile this file. A context owns one handle with a workspace of its own, and its results are then the same in every run,
   also within a graph. cublasLt, which comes with cuBLAS, computes most products (>>cuda-gemm); TN_CUBLASLT=0 leaves it
   out. */

#define TNC_TEXT_(x) #x
#define TNC_TEXT(x) TNC_TEXT_(x)

#if defined(_WIN32) && !defined(TN_CUDA_HOST)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#define TNC_FIND(function) reinterpret_cast<void *>(GetProcAddress((HMODULE)b->library, TNC_TEXT(function)))
static void *tnc_library_open(void) { return (void *)LoadLibraryA("cublas64_" TNC_TEXT(CUBLAS_VER_MAJOR) ".dll"); }
static void *tnc_library_lt(void) { return (void *)LoadLibraryA("cublasLt64_" TNC_TEXT(CUBLAS_VER_MAJOR) ".dll"); }
static void  tnc_library_close(void *library) { FreeLibrary((HMODULE)library); }
static void  tnc_library_path(void *library, char path[512]) { GetModuleFileNameA((HMODULE)library, path, 512); }
#else
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#ifdef TN_CUDA_HOST
#define TNC_FIND(function) reinterpret_cast<void *>(&function)
#define TNC_BLAS(name) "libtnch_" name ".so"                            /* what a test puts somewhere, to be found */
#define TNC_BLAS_ELSE &tnc_engine
static char tnc_engine;
#else
#define TNC_FIND(function) dlsym(b->library, TNC_TEXT(function))      /* cublasCreate is a macro for cublasCreate_v2 */
#define TNC_BLAS(name) "lib" name ".so." TNC_TEXT(CUBLAS_VER_MAJOR)
#define TNC_BLAS_ELSE NULL
#endif
#ifdef __aarch64__
#define TNC_TARGET "sbsa-linux"
#else
#define TNC_TARGET "x86_64-linux"
#endif

/* Opens cuBLAS in the first folder ROOT/WITHIN that has it; * in WITHIN stands for anything. cuBLAS needs cublasLt, which lies
   beside it, where the loader need not look: so that is loaded first. */
static void *tnc_library_in(const char *root, const char *within)
{
    char   path[512];
    void  *library = NULL;
    glob_t found;
    if (!root || !root[0]) return NULL;
    if (snprintf(path, sizeof path, "%s/%s/" TNC_BLAS("cublas"), root, within) >= (int)sizeof path) return NULL;
    if (glob(path, 0, NULL, &found) != 0) return NULL;
    for (size_t i = 0; i < found.gl_pathc && !library; i++) {
        const char *at = found.gl_pathv[i];
        if (snprintf(path, sizeof path, "%.*s" TNC_BLAS("cublasLt"), (int)(strrchr(at, '/') + 1 - at), at) < (int)sizeof path)
            (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
        library = dlopen(at, RTLD_NOW | RTLD_LOCAL);
    }
    globfree(&found);
    return library;
}

/* Searches the paths of the loader; the folder where CUDA is installed, which is often not one of them; and the packages of
   Python, of an active environment first. */
static void *tnc_library_open(void)
{
    static const char *const of_cuda[] = { "lib64", "lib", "targets/" TNC_TARGET "/lib" };
    static const char *const of_python[] = { "lib/python3*/*-packages/nvidia/cu" TNC_TEXT(CUBLAS_VER_MAJOR) "/lib",
                                             "lib/python3*/*-packages/nvidia/cublas/lib" };        /* of CUDA 12 */
    const char *home = getenv("CUDA_HOME"), *user = getenv("HOME");
    const char *root[] = { getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), NULL, "/usr/local", "/usr", "/opt/conda" };
    char        local[512] = "";
    void       *library = dlopen(TNC_BLAS("cublas"), RTLD_NOW | RTLD_LOCAL);
    if (user && user[0]) snprintf(local, sizeof local, "%s/.local", user);
    root[2] = local;
    for (size_t i = 0; i < sizeof of_cuda / sizeof *of_cuda && !library; i++)
        library = tnc_library_in(home && home[0] ? home : "/usr/local/cuda", of_cuda[i]);
    for (size_t i = 0; i < sizeof root / sizeof *root; i++)
        for (size_t k = 0; k < sizeof of_python / sizeof *of_python && !library; k++)
            library = tnc_library_in(root[i], of_python[k]);
    return library ? library : TNC_BLAS_ELSE;
}

/* The one that cuBLAS has loaded, which has this name. */
static void *tnc_library_lt(void)
{
    void *library = dlopen(TNC_BLAS("cublasLt"), RTLD_NOW | RTLD_LOCAL);
    return library ? library : TNC_BLAS_ELSE;
}
static void tnc_library_close(void *) {}        /* the library stays loaded: it is large, and the next context needs it */

static void tnc_library_path(void *library, char path[512])
{
    struct link_map *map = NULL;
    if (library != TNC_BLAS_ELSE && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) snprintf(path, 512, "%s", map->l_name);
}
#endif

TNC_FN void tnc_plan_destroy(const tnc_lt *b, tnc_plan *p)
{
    if (p->a) b->layout_destroy(p->a);
    if (p->b) b->layout_destroy(p->b);
    if (p->c) b->layout_destroy(p->c);
    if (p->product) b->product_destroy(p->product);
    memset(p, 0, sizeof *p);
}

TNC_FN void tnc_lt_close(tnc_lt *b)
{
    while (b->plans > 0) tnc_plan_destroy(b, &b->plan[--b->plans]);
    if (b->preference) b->preference_destroy(b->preference);
    if (b->handle) b->destroy(b->handle);
    if (b->library) tnc_library_close(b->library);
    memset(b, 0, sizeof *b);
}

/* Where the depth of a product is divided, its partial sums are F32 and added in one order. */
static bool tnc_lt_open(tnc_lt *b)
{
    const char    *wanted = getenv("TN_CUBLASLT");
    const uint64_t workspace = TNC_BLAS_WORKSPACE;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if ((wanted && strcmp(wanted, "0") == 0) || (b->library = tnc_library_lt()) == NULL) return false;
    *(void **)&b->create = TNC_FIND(cublasLtCreate);
    *(void **)&b->destroy = TNC_FIND(cublasLtDestroy);
    *(void **)&b->version = TNC_FIND(cublasLtGetVersion);
    *(void **)&b->product_create = TNC_FIND(cublasLtMatmulDescCreate);
    *(void **)&b->product_destroy = TNC_FIND(cublasLtMatmulDescDestroy);
    *(void **)&b->product_set = TNC_FIND(cublasLtMatmulDescSetAttribute);
    *(void **)&b->layout_create = TNC_FIND(cublasLtMatrixLayoutCreate);
    *(void **)&b->layout_destroy = TNC_FIND(cublasLtMatrixLayoutDestroy);
    *(void **)&b->layout_set = TNC_FIND(cublasLtMatrixLayoutSetAttribute);
    *(void **)&b->preference_create = TNC_FIND(cublasLtMatmulPreferenceCreate);
    *(void **)&b->preference_destroy = TNC_FIND(cublasLtMatmulPreferenceDestroy);
    *(void **)&b->preference_set = TNC_FIND(cublasLtMatmulPreferenceSetAttribute);
    *(void **)&b->heuristic = TNC_FIND(cublasLtMatmulAlgoGetHeuristic);
    *(void **)&b->matmul = TNC_FIND(cublasLtMatmul);
    if (b->create && b->destroy && b->version && b->product_create && b->product_destroy && b->product_set
        && b->layout_create && b->layout_destroy && b->layout_set && b->preference_create && b->preference_destroy
        && b->preference_set && b->heuristic && b->matmul && b->create(&b->handle) == CUBLAS_STATUS_SUCCESS
        && b->preference_create(&b->preference) == CUBLAS_STATUS_SUCCESS
        && b->preference_set(b->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace)
               == CUBLAS_STATUS_SUCCESS
        && b->preference_set(b->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions)
               == CUBLAS_STATUS_SUCCESS) return true;
    tnc_lt_close(b);
    return false;
}

TNC_FN void tnc_blas_close(tnc_blas *b)
{
    if (b->handle) b->destroy(b->handle);
    if (b->library) tnc_library_close(b->library);
    memset(b, 0, sizeof *b);
}

static void tnc_blas_log(const tn_desc *desc, tn_log_level level, const char *format, ...)
{
    char    text[640];
    va_list list;
    if (!desc->log) return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    desc->log(desc->log_user, level, text);
}

/* The log says which cuBLAS computes the products of the context. Without one it is the slow kernel of this file, and the line
   is a warning. Products of BF16 are accumulated in F32: reductions in reduced precision are disabled. */
TNC_FN void tnc_blas_open(tnc *s, const tn_desc *desc)
{
    tnc_blas   *b = &s->blas;
    const char *wanted = getenv("TN_CUBLAS");
    const char *why = "not found";
    char        path[512] = "an unknown path", with[64] = "without cublasLt";
    int         version = 0;
    if (wanted && strcmp(wanted, "0") == 0) {
        tnc_blas_log(desc, TN_LOG_INFO, "cuBLAS: not used, because TN_CUBLAS is 0; matrix products run on a kernel of this "
                     "backend");
        return;
    }
    if ((b->library = tnc_library_open()) != NULL) {
        *(void **)&b->create = TNC_FIND(cublasCreate);
        *(void **)&b->destroy = TNC_FIND(cublasDestroy);
        *(void **)&b->version = TNC_FIND(cublasGetVersion);
        *(void **)&b->set_stream = TNC_FIND(cublasSetStream);
        *(void **)&b->set_workspace = TNC_FIND(cublasSetWorkspace);
        *(void **)&b->set_math = TNC_FIND(cublasSetMathMode);
        *(void **)&b->text = TNC_FIND(cublasGetStatusString);
        *(void **)&b->gemm = TNC_FIND(cublasGemmEx);
        *(void **)&b->gemms = TNC_FIND(cublasGemmStridedBatchedEx);
        tnc_library_path(b->library, path);
        if (b->create && b->destroy && b->version && b->set_stream && b->set_workspace && b->set_math && b->text && b->gemm
            && b->gemms && b->create(&b->handle) == CUBLAS_STATUS_SUCCESS
            && b->set_stream(b->handle, s->stream) == CUBLAS_STATUS_SUCCESS
            && b->set_math(b->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) == CUBLAS_STATUS_SUCCESS
            && cudaMalloc(&s->blas_workspace, TNC_BLAS_WORKSPACE) == cudaSuccess
            && b->set_workspace(b->handle, s->blas_workspace, TNC_BLAS_WORKSPACE) == CUBLAS_STATUS_SUCCESS
            && b->version(b->handle, &version) == CUBLAS_STATUS_SUCCESS) {
            if (tnc_lt_open(&s->lt)) {
                const int lt = (int)s->lt.version();
                snprintf(with, sizeof with, "with cublasLt %d.%d.%d", lt / 10000, lt / 100 % 100, lt % 100);
            }
            tnc_blas_log(desc, TN_LOG_INFO, "cuBLAS: %d.%d.%d from %s, %s", version / 10000, version / 100 % 100,
                         version % 100, path, with);
            return;
        }
        why = path;
    }
    (void)cudaGetLastError();
    tnc_blas_close(b);
    tnc_blas_log(desc, TN_LOG_WARN, "cuBLAS: %s%s; matrix products run on a kernel of this backend, without tensor cores",
                 why, why == path ? " cannot be initialised" : "");
}
