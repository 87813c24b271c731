"""What a task is seen doing: by its watchdog, in stacks that are asked for, in what it logs."""
