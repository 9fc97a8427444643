// A process of Nextflow is one bdrun job of many parts, within the memory and the processors of the process:
//     nextflow run main.nf
// Each try has a directory of its own, so the journal and what the parts write lie elsewhere (`state`): a second try goes on where the
// first one stopped.
params.parts = "${launchDir}/parts"
params.state = "${launchDir}/state"
params.tool = 'sort'

process each_part {
    cpus 2
    memory '200 MB'
    maxRetries 3
    errorStrategy 'retry'

    input:
    val parts

    output:
    path 'sorted'

    script:
    """
    task=\$PWD
    mkdir -p ${params.state}/sorted
    cd ${params.state}
    bdrun --memory ${task.memory.toMega()}M --processors ${task.cpus} --resume sorted.journal --output quiet \
        --glob '${parts}/*.txt' --output-files 'sorted/{/}' -- ${params.tool} {}
    ln -s ${params.state}/sorted \$task/sorted
    """
}

process total {
    publishDir "${launchDir}", mode: 'copy'

    input:
    path 'sorted'

    output:
    path 'total.txt'

    script:
    """
    sort -m sorted/*.txt > total.txt
    """
}

workflow {
    total(each_part(params.parts))
}
