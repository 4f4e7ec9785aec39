"""In place of NVIDIA's package, in processes that find this folder first: a GPU made of the emulator."""
