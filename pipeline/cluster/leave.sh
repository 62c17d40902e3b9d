# Ask the engines of this node to publish what is finished, and wait until they have, for so many seconds at most.
mkdir -p "$FACTSWEEP_LEAVING" && touch "$FACTSWEEP_LEAVING/asked"
at_work() {
    for sign in "$FACTSWEEP_LEAVING"/[0-9]*; do
        if [ -d "/proc/${sign##*/}" ]; then return 0; fi
    done
    return 1
}
while at_work && [ "$within_s" -gt 0 ]; do
    sleep 1
    within_s=$((within_s - 1))
done
