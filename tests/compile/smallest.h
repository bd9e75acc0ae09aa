/* smallest.h: all that can be left out of the library. */
#define TN_SMALL
#define TN_NO_TRAINING
#define TN_NO_OPERATOR
#define TN_NO_IMAGE
#define TN_SIMD_MAX -1
