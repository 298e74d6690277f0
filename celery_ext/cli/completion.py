"""Completion by a shell: what click does of itself, and words with a colon in bash."""

from click.shell_completion import BashComplete, add_completion_class

#: Bash breaks words at colons and equals signs, as in the URL of a broker. This puts them together again for the
#: function of click, and takes from what that offers the beginning that bash does not replace.
_WHOLE_WORDS = """
%(complete_func)s_whole() {
    local word words=() rest=${COMP_LINE:0:COMP_POINT} typed=$2
    for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do
        if [[ ${#words[@]} -eq 0 || $rest == [[:space:]]* ]]; then
            words+=("$word")
        else
            words[-1]+=$word
        fi
        rest=${rest#*"$word"}
    done
    if [[ $rest == [[:space:]]* ]]; then
        words+=("${rest#"${rest%%%%[![:space:]]*}"}")
    else
        words[-1]+=$rest
    fi
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1)) at
    local begun=${words[-1]%%"$typed"}
    %(complete_func)s "$@" 2>/dev/null
    for at in "${!COMPREPLY[@]}"; do
        COMPREPLY[at]=${COMPREPLY[at]#"$begun"}
    done
}

complete -o nosort -F %(complete_func)s_whole %(prog_name)s
"""


class _WholeWords(BashComplete):
    """Completes in bash, also behind words with a colon."""

    source_template = BashComplete.source_template + _WHOLE_WORDS


def complete_whole_words() -> None:
    """Lets click write our script for bash, for ``delayq`` and for ``celery``."""
    add_completion_class(_WholeWords)
