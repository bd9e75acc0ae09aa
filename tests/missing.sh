#!/bin/sh
# sh tests/missing.sh NEED [FOR]: a tool is not here. That is a skipped test, or a failed one where TN_REQUIRE lists NEED.
case ,${TN_REQUIRE:-}, in
*,"$1",*) echo "FAIL $1 is required and does not work here"; exit 1 ;;
*)        echo "SKIP needs $1${2:+ $2}"; exit 77 ;;
esac
