#!/bin/bash
#SBATCH --job-name=each-part
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=200M
#SBATCH --time=10
#SBATCH --signal=B:TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append
# One Slurm job is one bdrun job of many parts:
#     sbatch slurm.sh
# A minute before the time is over Slurm sends SIGTERM to this script; bdrun ends its parts, and the job queues itself again. It goes on where
# it stopped, on whatever node it gets, so the journal and what parts write lie in the directory it was submitted from.
mkdir -p sorted
bdrun --memory "${SLURM_MEM_PER_NODE}M" --processors "$SLURM_CPUS_PER_TASK" --scratch "${TMPDIR:-/var/tmp}" --resume sorted.journal \
    --glob 'parts/*.txt' --output-files 'sorted/{/}' -- "${TOOL:-sort}" {} &
job=$!
trap 'asked=yes; kill -TERM $job' TERM
wait $job
code=$?
if [ -n "${asked:-}" ]; then
    # wait was interrupted by the signal: bdrun still ends its parts.
    wait $job
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
[ $code = 0 ] && sort -m sorted/*.txt > total.txt
exit $code
