"""Resources of the operating system that this process uses: open files and memory of C libraries."""
