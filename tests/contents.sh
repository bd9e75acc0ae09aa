#!/bin/sh
# sh tests/contents.sh tensornet.h: the table of contents in the first comment, the banners and the tags agree: tests/map.awk
# says what is checked.
exec awk -v check=1 -f tests/map.awk "$1"
