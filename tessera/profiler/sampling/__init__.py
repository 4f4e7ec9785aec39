"""What is looked at now and then: stacks of threads, calls."""
