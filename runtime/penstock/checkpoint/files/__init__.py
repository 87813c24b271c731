"""What lies in a job's folder in storage: names, manifests, state files, checksums, and who needs which file."""
