/* tensornet.c: the library in a file of its own, so that it is compiled once. */
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
