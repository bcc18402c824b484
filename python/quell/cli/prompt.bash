# The bash of a bare `quell shell` reads this in place of ~/.bashrc.
[ -f ~/.bashrc ] && . ~/.bashrc
PS1="(quell $QUELL_SHELL) $PS1"
