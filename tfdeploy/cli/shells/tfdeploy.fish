# Completion of tfdeploy for fish: tfdeploy completion fish > ~/.config/fish/completions/tfdeploy.fish
function __tfdeploy_proposals
    set -l line (commandline -cp)
    set -l words (commandline -opc)
    set -l proposals
    if not string match -q '* -- *' -- $line # what follows is of another program
        set proposals (_TFDEPLOY_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
            _TYPER_COMPLETE_ARGS="$line" $words[1] 2>/dev/null)
    end
    if test -n "$proposals"
        string join \n -- $proposals
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command tfdeploy --no-files --keep-order --arguments '(__tfdeploy_proposals)'
