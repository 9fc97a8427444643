#!/bin/sh
# A job of parts in a container without privileges, by an ordinary user, under Docker's own filter of system calls:
#     sh container.sh IMAGE
# IMAGE has bdrun, its libraries, and the tool. bdrun takes four fifths of --memory for its budget. Such a container forbids to page programs
# from outside, so bdrun puts libsbmalloc.so in front of them (and says so); `--cap-add SYS_PTRACE` permits it.
set -e
image=$1
mkdir -p sorted scratch
docker run --rm --network none --user "$(id -u):$(id -g)" --memory "${MEMORY:-256m}" --cpus 2 --volume "$PWD:/job" --workdir /job $OPTIONS \
    "$image" bdrun --scratch scratch --resume sorted.journal --glob 'parts/*.txt' --output-files 'sorted/{/}' -- "${TOOL:-sort}" {}
sort -m sorted/*.txt > total.txt
