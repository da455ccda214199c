#!/bin/sh
# Case E1: run job.json on 10,000 real reads, split twice and whole, and check it all. `run.sh --help` says what can be given.
set -eu

tools="seqtk=seqtk vsearch=vsearch bowtie2=bowtie2 prodigal=prodigal cd-hit=cd-hit blastp=ncbi-blast+"
split_tasks="screen genecalling search"
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin "$@"

reads=$(from_package trim-galore /usr/share/doc/trim-galore/examples/illumina_10K.fastq.gz)
host=$(from_package bowtie2-examples /usr/share/doc/bowtie2/examples/reference/lambda_virus.fa.gz)
for species in C E L M; do
    found=$(from_package proteinortho /usr/share/doc/proteinortho/examples/$species.faa)
    cat "$found" >>"$home/proteins.faa"
done

start
run() {
    run_job "$1" "$here/job.json" "$2" \
        --upload reads.fastq="$reads" --upload host.fna="$host" --upload proteins.faa="$home/proteins.faa"
}
split=${output:-$home/split}
run "$split" "$parts"
run "$home/four" 4
run "$home/whole" 1

records() { grep -c '>' "$split/$1" || true; }

printf '%-34s %9s %9s\n' STEP RECORDS EXPECTED
check_count "1 preprocess   prep.fna" "$(records prep.fna)" 9852
check_count "2 dereplicate  derep.fna" "$(records derep.fna)" 9851
check_count "3 screen       screened.fna" "$(records screened.fna)" 9851
check_count "4 genecalling  genes.faa" "$(records genes.faa)" 2648
check_count "5 cluster      clusters.faa" "$(records clusters.faa)" 2585
check_count "6 search       hits.tsv" "$(wc -l <"$split/hits.tsv")" 2576
check_sum "prep.fna" "$split/prep.fna" 39e2c4348a69f2fd931e35ff35b28e9917f9e81c6fd23263a8421e0973e72dce

# Prodigal numbers its input sequences in a comment behind each name: that differs, names and sequences must not.
for folder in "$split" "$home/four" "$home/whole"; do
    sed '/^>/s/ .*//' "$folder/genes.faa" >"$folder/genes.names-and-sequences"
done
compare() {
    check_same "screened reads in $1 parts" "$2/screened.fna" "$home/whole/screened.fna"
    check_same "names and sequences of genes in $1 parts, in the same order" \
        "$2/genes.names-and-sequences" "$home/whole/genes.names-and-sequences"
    check_same "hits in $1 parts" "$2/hits.tsv" "$home/whole/hits.tsv"
}
compare "$parts" "$split"
compare 4 "$home/four"
conclude
