"""The breadth suite: many programs as users write them, none with a kernel of its own, each against its best peer."""
