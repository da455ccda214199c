#!/bin/sh
# Case E2: map reads to a genome, single and in pairs, split and whole, and check it all. `run.sh --help` says what can be given.
set -eu

tools="bowtie2=bowtie2 samtools=samtools"
split_tasks="map"
# shellcheck source=examples/common.sh
. "$(dirname "$0")/../common.sh"
begin "$@"

examples=/usr/share/doc/bowtie2/examples
reads=$(from_package bowtie2-examples $examples/reads/reads_1.fq.gz)
mates=$(from_package bowtie2-examples $examples/reads/reads_2.fq.gz)
genome=$(from_package bowtie2-examples $examples/reference/lambda_virus.fa.gz)

start
single() {
    run_job "$1" "$here/job.json" "$2" --upload reads.fastq.gz="$reads" --upload genome.fna="$genome"
}
paired() {
    run_job "$1" "$here/paired.json" "$2" --upload reads_1.fastq.gz="$reads" --upload reads_2.fastq.gz="$mates" \
        --upload genome.fna="$genome"
}
split=${output:-$home}/single
pairs=${output:-$home}/paired
single "$split" "$parts"
single "$home/whole" 1
paired "$pairs" "$parts"
paired "$home/whole-pairs" 1

# The first number of the line of `samtools flagstat` that ends in this.
flagstat() { sed -n "s/^\([0-9]*\) + 0 $2.*/\1/p" "$1/flagstat.txt" | head -n 1; }

# Columns 1 to 11: the optional ones count what was met before.
alignments() { grep -v '^@' "$1/mapped.sam" | cut -f 1-11 | LC_ALL=C sort >"$1/alignments"; }

printf '%-34s %9s %9s\n' "" FOUND EXPECTED
check_count "single reads" "$(flagstat "$split" "in total")" 10000
check_count "single reads, mapped" "$(flagstat "$split" "mapped")" 9404
check_count "positions of the genome" "$(wc -l <"$split/depth.tsv")" 48502
check_count "depth of single reads, summed" "$(awk '{ sum += $3 } END { print sum }' "$split/depth.tsv")" 1039849
check_count "pairs, reads" "$(flagstat "$pairs" "in total")" 20000
check_count "pairs, reads mapped" "$(flagstat "$pairs" "mapped")" 18844
check_count "pairs, reads properly paired" "$(flagstat "$pairs" "properly paired")" 12990
for folder in "$split" "$home/whole" "$pairs" "$home/whole-pairs"; do
    alignments "$folder"
done
check_sum "alignments of single reads" "$split/alignments" 93efac94b587d65f0b5d0a7692d7817142b7ab9a67cb726b490da8beb5baf0fa
check_same "alignments of single reads (SAM columns 1-11, sorted)" "$split/alignments" "$home/whole/alignments"
check_same "alignments of pairs (SAM columns 1-11, sorted)" "$pairs/alignments" "$home/whole-pairs/alignments"
conclude
