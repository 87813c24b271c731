"""One leader acts: claims, whose manifests count, and whether the store keeps the promise this rests on."""
