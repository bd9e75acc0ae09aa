/* smallest.h: all that can be left out of the library. */
#define TN_NO_TRAINING
#define TN_NO_OPERATOR
#define TN_NO_CONTRACTION
#define TN_NO_TEXT
#define TN_NO_MODELS
#define TN_NO_CIRCUITS
#define TN_NO_IMAGE
#define TN_NO_MPS
#define TN_NO_F64
#define TN_SIMD_MAX 0
