// program.cpp: the same in C++17, with a copy of the library that is its own: a compiler is done sooner with what is called alone
#include <cstdio>
#define TN_STATIC
#define TENSORNET_IMPLEMENTATION
#include <tensornet.h>

int main() { std::puts(tn_version()); }
