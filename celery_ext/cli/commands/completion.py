"""``delayq completion``."""

import click
from click.shell_completion import BashComplete, ShellComplete, get_completion_class

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


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which a shell completes the command: its commands, options and queues.

    Names of queues come from the broker of the line, or of the environment, if it answers within a second.

    Run as `celery delayq completion`, it prints the script for the command `celery`.
    """
    root = context.find_root()
    program = "delayq" if root.command.name == "delayq" else "celery"
    kind: type[ShellComplete] | None = _WholeWords if shell == "bash" else get_completion_class(shell)
    assert kind is not None  # noqa: S101  # click has each of the three
    click.echo(kind(root.command, {}, program, f"_{program.upper()}_COMPLETE").source(), nl=False)
