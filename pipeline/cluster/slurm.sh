set -euo pipefail

# USR1 comes before the time limit and, with PreemptParameters=send_user_signal, before a preemption: the sweep publishes
# what is finished, and the job goes back into the queue. TERM alone is `scancel --batch`: it ends here.
requeue=''
driver=''
stop() { if [[ $driver ]]; then kill -TERM "$driver" || true; else exit 143; fi; }
trap 'requeue=yes; stop' USR1
trap 'requeue=; stop' TERM

# What is left in the background is Ray. Its nodes are told to stop, and put their logs beside the job's; a TERM for srun
# would kill them at once. Slurm ends what stays.
finish() {
    local code=$?
    trap '' USR1 TERM
    if [[ $(jobs -pr) ]]; then scancel --signal=TERM "$SLURM_JOB_ID" || true; fi  # the steps, not this script
    for _ in {1..60}; do
        if [[ ! $(jobs -pr) ]]; then break; fi
        sleep 0.5
    done
    if [[ $requeue ]] && ((code)); then scontrol requeue "$SLURM_JOB_ID"; fi
}
trap finish EXIT

# A sweep that is no further than at its last starts would be none the next time.
mkdir -p "$logs"
state=$(timeout 600 bash -c "$status" 2>/dev/null | sed '/^run /d; s/ · written by .*//' | cksum) || state="unknown"
vain=0
if [[ -s $logs/progress ]]; then
    { read -r vain; read -r before; } <"$logs/progress"
    if [[ $state == unknown ]]; then state=$before  # nobody can say that it was in vain
    elif [[ $state == "$before" ]]; then vain=$((vain + 1))
    else vain=0
    fi
fi
printf '%s\n' "$vain" "$state" >"$logs/progress"
if ((vain > requeues)); then
    echo "factsweep: $vain starts brought the sweep no further; see $logs, then launch again." >&2
    exit 1
fi

# Nobody else's Ray on these nodes, nor what one has left there, may come in between: the job has ports, a token and
# folders of its own, and what the user's shell says of another Ray does not count.
unset RAY_TMPDIR RAY_AUTH_TOKEN_PATH RAY_NAMESPACE
address() { ip -4 -o address show dev "$1" | awk '{ sub("/.*", "", $4); print $4; exit }'; }
export -f address
read -r ip _ < <(if [[ $interface ]]; then address "$interface"; else hostname -I; fi)  # of the first node, which runs this
read -r port client_port < <(python - <<'PYTHON'
import socket

with socket.socket() as one, socket.socket() as two:
    for each in (one, two):
        each.bind(("", 0))
    print(one.getsockname()[1], two.getsockname()[1])
PYTHON
)
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token
export RAY_ADDRESS="$ip:$port" RAY_USAGE_STATS_ENABLED=0
export RAY_raylet_start_wait_time_s=120    # a shared file system that is cold is slow
export RAY_prestart_worker_first_driver=0  # idle workers that know nothing of the sweep's environment
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0  # when Ray is told to stop, the sweep has published what it will
export SLURM_EXPORT_ENV=ALL                # whatever sbatch was told: the nodes need these, and the user's keys
if [[ $interface ]]; then export NCCL_SOCKET_IFNAME=$interface GLOO_SOCKET_IFNAME=$interface; fi

# What a node does. --block keeps Ray in its step: when the step ends, so does Ray.
node='
logs=$1/${SLURM_RESTART_COUNT:-0}/${SLURMD_NODENAME:-$(hostname)} interface=$2 leave=$3
shift 3
temp=$(mktemp -d "/tmp/fs-$SLURM_JOB_ID-XXXXXX")  # short: the paths of sockets end at 107 characters
export RAY_TMPDIR=$temp           # nobody else may look into it; Ray opens its own folder to all
export FACTSWEEP_LEAVING=$temp/leaving
if [[ $interface ]]; then set -- "$@" --node-ip-address="$(address "$interface")"; fi
again=3                           # tries of the head; the others try while it is there
asked=
trap "asked=yes; eval \"\$leave\"; kill -TERM \"\$ray\"" TERM
while true; do
    ray start --block --temp-dir="$temp/r" --min-worker-port=0 --max-worker-port=0 --include-log-monitor=false "$@" &
    ray=$!
    code=0
    wait "$ray" || code=$?
    while kill -0 "$ray" 2>/dev/null; do
        code=0
        wait "$ray" || code=$?
    done
    # On a slow node Ray gives up after some forty seconds.
    if [[ $asked || $code == 0 ]]; then break; fi
    if [[ " $* " == *" --head "* ]]; then
        again=$((again - 1))
        if ((again == 0)); then break; fi
    elif ! timeout 60 ray health-check --address "$RAY_ADDRESS" >/dev/null 2>&1; then
        break
    fi
    echo "factsweep: Ray ended with code $code on $(hostname); it is started again." >&2
    sleep 2
done
mkdir -p "$logs" && cp -r "$temp"/r/session_latest/logs/. "$logs"
rm -rf "$temp"
exit "$code"
'
# A step of its own for each node: one that dies, or that is late, is no other's end.
ray_start() {  # ray_start NODE RAY_OPTION…
    srun --nodes=1 --ntasks=1 --nodelist="$1" --no-kill --kill-on-bad-exit=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
        bash -c "$node" node "$logs" "$interface" "$leave" --num-cpus="$SLURM_CPUS_PER_TASK" \
        ${metrics_port:+--metrics-export-port="$metrics_port"} "${@:2}" &
}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
ray_start "${nodes[0]}" --head --node-ip-address="$ip" --port="$port" --ray-client-server-port="$client_port" \
    --include-dashboard=false
head=$!
until timeout 60 ray health-check --address "$RAY_ADDRESS" 2>/dev/null; do
    if ! kill -0 "$head" 2>/dev/null; then
        echo "factsweep: Ray did not start on ${nodes[0]}; see $logs. The job goes back into the queue." >&2
        requeue=yes
        exit 1
    fi
    sleep 1
done
for name in "${nodes[@]:1}"; do ray_start "$name" --address="$RAY_ADDRESS"; done
timeout 300 python - "${#nodes[@]}" <<'PYTHON' || echo "factsweep: not all nodes are there yet; the sweep begins without them." >&2
import logging, sys, time
import ray

ray.init(address="auto", logging_level=logging.ERROR)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(1)
PYTHON

# The servers of the model, one on each node, which end with the job. Others may reach the nodes, so they ask for a key.
urls=''
if [[ $serve ]]; then
    if [[ ! ${OPENAI_API_KEY:-} ]]; then OPENAI_API_KEY=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n'); fi
    read -r PORT < <(python -c 'import socket; s = socket.create_server(("", 0)); print(s.getsockname()[1])')
    export OPENAI_API_KEY VLLM_API_KEY=$OPENAI_API_KEY PORT
    mkdir -p "$logs/${SLURM_RESTART_COUNT:-0}"
    pids=()
    for name in "${nodes[@]}"; do
        srun --overlap --nodes=1 --ntasks=1 --nodelist="$name" --no-kill --kill-on-bad-exit=0 \
            --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c "$serve" \
            >"$logs/${SLURM_RESTART_COUNT:-0}/server-$name.log" 2>&1 &
        pids+=("$!")
        urls+="${urls:+,}http://$name:$PORT/v1"
    done
    # One whose step has ended is done without.
    python - "$start_s" "${pids[*]}" "$urls" <<'PYTHON' || { echo "factsweep: no server answers; see $logs." >&2; exit 1; }
import os, sys, time, urllib.request

headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
def answers(url):
    try:
        return urllib.request.urlopen(urllib.request.Request(f"{url}/models", headers=headers), timeout=5).status == 200
    except OSError:
        return False

end, ready = time.monotonic() + float(sys.argv[1]), set()
waiting = dict(zip(sys.argv[2].split(), sys.argv[3].split(",")))
while waiting and time.monotonic() < end:
    time.sleep(2)
    ready |= {url for url in waiting.values() if answers(url)}
    waiting = {pid: url for pid, url in waiting.items() if url not in ready and os.path.exists(f"/proc/{pid}")}
sys.exit(not ready)
PYTHON
fi

sweep &
driver=$!
code=0
wait "$driver" || code=$?
while kill -0 "$driver" 2>/dev/null; do  # a signal ends `wait`, not the sweep
    code=0
    wait "$driver" || code=$?
done
if ((code == 75)); then
    echo "factsweep: the store, or the model's servers, do not answer. The job goes back into the queue." >&2
    requeue=yes
fi
exit "$code"
