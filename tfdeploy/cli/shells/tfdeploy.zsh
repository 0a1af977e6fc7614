#compdef tfdeploy
# Completion of tfdeploy for zsh: eval "$(tfdeploy completion zsh)" in ~/.zshrc, after compinit
_tfdeploy() {
    local -a found described
    local line="${(j: :)words[1,CURRENT]}" proposal value
    if [[ $line == *" -- "* ]]; then # words of another program
        _files
        return
    fi
    found=("${(@f)$(_TFDEPLOY_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS="$line" "${words[1]}" 2>/dev/null)}")
    for proposal in ${found:#}; do
        value="${${proposal%%$'\t'*}//:/\\:}"
        described+=("$value${${(M)proposal%$'\t'*}/#$'\t'/:}")
    done
    if (( $#described )); then
        _describe -V tfdeploy described
    else
        _files
    fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _tfdeploy "$@"
else
    compdef _tfdeploy tfdeploy
fi
