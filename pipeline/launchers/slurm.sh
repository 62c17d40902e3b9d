set -euo pipefail

# USR1 comes before the time limit and, with PreemptParameters=send_user_signal, before a preemption: the sweep publishes
# what is finished, and the job goes back into the queue. TERM alone is `scancel --batch`: it ends here.
requeue=''
driver=''
stop() { if [[ $driver ]]; then kill -TERM "$driver" || true; else exit 143; fi; }
trap 'requeue=yes; stop' USR1
trap 'requeue=; stop' TERM

# What is left in the background is Ray: each srun passes the signal on to its nodes. Slurm ends what stays.
finish() {
    local code=$? steps
    trap '' USR1 TERM
    mapfile -t steps < <(jobs -p)
    if ((${#steps[@]})); then kill -TERM "${steps[@]}" || true; fi
    if [[ $requeue ]] && ((code)); then scontrol requeue "$SLURM_JOB_ID"; fi
}
trap finish EXIT

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
read -r ip _ < <(hostname -I)              # this script runs on the first node
port=$((20000 + SLURM_JOB_ID % 10000))     # two jobs may share a node; its other ports Ray chooses
export RAY_ADDRESS="$ip:$port" RAY_USAGE_STATS_ENABLED=0
export RAY_raylet_start_wait_time_s=120    # a shared file system that is cold is slow
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0  # when Ray is told to stop, the sweep has published what it will

# Nobody else on these nodes may use this Ray.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token

# --block keeps Ray in its step: when the step ends, so does Ray.
ray_start() {  # ray_start SRUN_OPTION… -- RAY_OPTION…
    local step=()
    while [[ $1 != -- ]]; do step+=("$1"); shift; done
    srun "${step[@]}" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
        ray start --block --num-cpus="$SLURM_CPUS_PER_TASK" --min-worker-port=0 --max-worker-port=0 "${@:2}" &
}
ray_start --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" -- \
    --head --node-ip-address="$ip" --port="$port" --include-dashboard=false
until timeout 60 ray health-check --address "$RAY_ADDRESS" 2>/dev/null; do
    kill -0 $!  # else Ray did not start
    sleep 1
done
workers=$((${#nodes[@]} - 1))
if ((workers)); then
    ray_start --nodes="$workers" --ntasks="$workers" --exclude="${nodes[0]}" -- --address="$RAY_ADDRESS"
fi
timeout 600 python - "${#nodes[@]}" <<'PYTHON'
import logging, sys, time
import ray

ray.init(address="auto", logging_level=logging.ERROR)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(1)
PYTHON

sweep &
driver=$!
code=0
wait "$driver" || code=$?
while kill -0 "$driver" 2>/dev/null; do  # a signal ends `wait`, not the sweep
    code=0
    wait "$driver" || code=$?
done
exit "$code"
