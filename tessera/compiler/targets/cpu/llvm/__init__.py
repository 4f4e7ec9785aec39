"""LLVM IR: types, values, the instruction sets, the just-in-time compiler."""
