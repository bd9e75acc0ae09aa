/* golden_compress.h: made by tools/golden_compress.py, which explains it. */

enum { GOLDEN_COMPRESS_OUT = 4, GOLDEN_COMPRESS_TERMS = 11, GOLDEN_COMPRESS_IN = 5 };

/* Of the layer, and of what changes with 1, 2, .. terms. */
static const double golden_compress[GOLDEN_COMPRESS_TERMS] = {
    34.38490104521869,
    33.02531371331489,
    28.566564290185266,
    27.10177349624172,
    25.319821867874637,
    21.930743127076706,
    18.810996899738385,
    14.649716433338574,
    10.415148746333847,
    4.574683189288189,
    3.1141421616953697,
};
