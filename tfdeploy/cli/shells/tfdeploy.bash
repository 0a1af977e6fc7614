# Completion of tfdeploy for bash: eval "$(tfdeploy completion bash)" in ~/.bashrc
_tfdeploy() {
    local line=${COMP_LINE:0:COMP_POINT} current before= proposal
    COMPREPLY=()
    [[ $line == *" -- "* ]] && return # words of another program
    current=${line##*[[:space:]]}
    # Bash splits words at colons, too, and replaces only what follows the last one.
    [[ $COMP_WORDBREAKS == *:* && $current == *:* ]] && before=${current%"${current##*:}"}
    while IFS= read -r proposal; do
        proposal=${proposal%%$'\t'*}
        COMPREPLY+=("${proposal#"$before"}")
    done < <(_TFDEPLOY_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS=$line "$1" 2>/dev/null)
    # The first read of no answer is an empty line.
    [[ ${#COMPREPLY[@]} -eq 1 && -z ${COMPREPLY[0]} ]] && COMPREPLY=()
}
complete -o default -o nosort -F _tfdeploy tfdeploy 2>/dev/null ||
    complete -o default -F _tfdeploy tfdeploy # bash before 4.4
