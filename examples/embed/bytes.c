/* bytes.c - turns a file into a C array: bytes FILE NAME > NAME.h
   cc examples/embed/bytes.c -o bytes

   A program then has the file inside: the array NAME, whose length is sizeof NAME. Where C23's #embed or a linker's .incbin can be
   counted on they do the same; this is for every compiler. */
#include <stdio.h>

int main(int argc, char **argv)
{
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    long  n = 0;
    int   byte;
    if (!file) {
        if (argc == 3) perror(argv[1]);
        else fprintf(stderr, "usage: bytes FILE NAME > NAME.h\n");
        return 1;
    }
    printf("static const unsigned char %s[] = {", argv[2]);
    for (; (byte = fgetc(file)) != EOF; n++) printf("%s%d", n == 0 ? "\n" : n % 32 ? "," : ",\n", byte);
    printf("\n};\n");
    if (n > 0 && !ferror(file) && fflush(stdout) == 0 && !ferror(stdout)) return fclose(file) != 0;
    fprintf(stderr, "bytes: %s is empty, could not be read, or its array could not be written\n", argv[1]);
    return 1;
}
