"""What a job cannot have, refused before anything of it runs."""
