package namespace_test

import (
	"context"
	"fmt"
	"log"

	"nvop/namespace"
	"nvop/namespace/txn"
	"nvop/nvmeioctl/sim"
)

// A simulated 7.68 TB drive becomes a 6.4 TB one: inventory, plan, transaction,
// verification.
func Example() {
	ctx := context.Background()
	profile, _ := sim.LookupProfile("pblaze7-7940-7.68tb")
	drive, err := sim.New(profile, sim.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer drive.Close()
	read := namespace.ReadOptions{Transport: "sim", Clock: drive.Clock()}
	inventory, err := namespace.ReadInventory(ctx, drive, read)
	if err != nil {
		log.Fatal(err)
	}
	size, err := namespace.ParseSize("6.4TB", false)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := namespace.PlanOPSet(inventory, namespace.OPTarget{Size: size, Title: "op set --size 6.4TB"}, namespace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, step := range plan.Steps {
		fmt.Printf("%d. %s; undo: %s\n", step.Index+1, step.Title, step.UndoText)
	}
	transaction, err := plan.Transaction()
	if err != nil {
		log.Fatal(err)
	}
	runner := &txn.Runner{
		Device: drive, Clock: drive.Clock(), Log: &txn.MemoryLog{},
		Registry: namespace.Executors(namespace.ExecutorOptions{}),
		Identify: namespace.ReadIdentity, Describe: namespace.DescribeDrive,
	}
	report, err := runner.Run(ctx, transaction)
	if err != nil {
		log.Fatal(err)
	}
	after, err := namespace.ReadInventory(ctx, drive, read)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.State, len(plan.Verify(after)), "mismatches")
	fmt.Println(namespace.Bytes(after.Namespaces[0].SizeBytes()))
	// Output:
	// 1. detach namespace 1 from controller 1 (0x1); undo: attaches it again
	// 2. delete namespace 1; undo: creates a namespace of the old size, format and sharing again; its data and its identifiers cannot be brought back
	// 3. create a namespace of 12,502,446,768 blocks of 512 (6,401,252,745,216 bytes (6.40 TB, 5.82 TiB)); undo: deletes it
	// 4. attach the new namespace to controller 1 (0x1); undo: detaches it
	// 5. look for the namespaces again and wait until the host shows them; undo: nothing to undo
	// done 0 mismatches
	// 6,401,252,745,216 bytes (6.40 TB, 5.82 TiB)
}
