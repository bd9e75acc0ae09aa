/* cuda_fake.c: a tn_cuda_backend() that is the cpu in disguise, with the fault that TN_FAULT names: what test_cuda.c must catch. */
#include "tensornet.h"

static tn_backend fake;
const tn_backend *tn_cuda_backend(void)
{
    if (fake.abi) return &fake;
    fake = *tn_cpu_backend();
    fake.name = "fake";
    fake.host = false;
    return &fake;
}
