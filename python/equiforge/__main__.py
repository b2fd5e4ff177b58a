"""`python -m equiforge` is the command line."""

from equiforge._command import main

main()
