// Package txn carries out changes to a drive as journaled transactions.
//
// A [Transaction] is a list of [Step]s. A step is plain data: what is done,
// with the exact commands, what it destroys and whether it can be undone; an
// [Executor], found by the step's kind, knows how to do, undo and verify it.
// Because steps are data and executors are rebuilt from code, a transaction
// survives the process: after a kill at any instant [Runner.Resume] finds out
// from the drive itself how far the open step got and goes on, and
// [Runner.Rollback] undoes what was done, in reverse, through the same journal.
//
// The order around each command is fixed: identity of the drive checked, facts
// read, caller's pre-step check (use, consent), intent made durable, command
// sent, outcome made durable, state verified by reading it back.
//
// The package must not know any command: it imports the device seam only, and
// what stores the journal is behind [Log].
package txn
