// program.cpp: the same in C++17, with a copy of the library of its own: with TN_STATIC the compiler leaves out what is unused
#include <cstdio>
#define TN_STATIC
#define TENSORNET_IMPLEMENTATION
#include <tensornet.h>

int main() { std::puts(tn_version()); }
