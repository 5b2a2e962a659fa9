"""One module a command of `aios-chat`: what the screens do, without a screen."""
