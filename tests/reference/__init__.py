"""A plain, slow implementation of the engine, used only to check the real one."""
