package jobfile_test

import (
	"fmt"

	"nvop/endurance/jobfile"
)

func ExampleParse() {
	f, err := jobfile.Parse("day.yaml", []byte(`version: 1
phases:
  - kind: measure
    workload: jesd219
    end: {drive_writes: 3}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	job, err := f.Job(jobfile.Region{CapacityBytes: 960_197_124_096, LBABytes: 4096})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := job.Phases[0]
	fmt.Println(p.Workload, p.ReadPercent, "% reads,", len(p.Sizes), "sizes,", p.End.DriveWritesMilli, "thousandths of a drive write")
	_, err = jobfile.Parse("day.yaml", []byte("version: 1\nphases:\n  - kind: measure\n    rw: write\n    order: permutation\n"))
	fmt.Println(err)
	// Output:
	// jesd219-4kn 40 % reads, 5 sizes, 3000 thousandths of a drive write
	// day.yaml:3:5: order is for what is random; write goes from the first block to the last
}
