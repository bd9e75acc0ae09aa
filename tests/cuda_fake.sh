# sh tests/cuda_fake.sh PROGRAM: test_cuda on a device that is the cpu (cuda_fake.c) finds nothing, and each planted fault.
program=$1
passed=0
failed=0

verdict() {
    if [ "$1" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL cuda_fake: $2"; fi
}

# finds FAULT TEST: the test of this name fails, in a small run too, and so does the program
finds() {
    said=$(TN_FAULT="$1" TN_TEST_SMALL=yes "$program" "$2" 2>&1) && { verdict 1 "\"$1\" was not found by $2"; return; }
    echo "$said" | grep -q "^FAIL $2"
    verdict $? "\"$1\": the program failed, but not in $2"
}

said=$("$program" 2>&1) || echo "$said" | grep -A3 '^FAIL'
echo "$said" | tail -1 | grep -q ' 0 failed'
verdict $? "the cpu itself is not right"

finds "writes behind"           cases_f32_beside
finds "writes before"           cases_f32_beside
finds "writes an input"         cases_f64
finds "a wrong number"          cases_f32
finds "a wrong gradient"        cases_f64
finds "refuses too late"        cases_bf16
finds "gemm reads C"            gemm_of_all_kinds
finds "swallows NaN"            nan_and_infinity
finds "differs from run to run" determinism
finds "another stream"          random_numbers
finds "a wrong update"          trains_alike_f64
finds "a label too many"        faults

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
