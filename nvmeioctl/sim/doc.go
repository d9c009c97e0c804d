// Package sim is a simulated NVMe drive: a controller that a tool cannot tell
// from a real one, with a model of flash behind it.
//
// A [Drive] is a nvmeioctl.Device, Resetter and EventSource. It answers the
// admin commands that its [Profile] claims, with the statuses of the NVMe
// specification, and it is strict: what a command must leave zero is checked.
// It lives in virtual time: commands that take time advance its clock and
// return at once.
//
// [New] makes a drive that lives in memory. [Create] makes one in a file and
// [Open] opens it: every command that changes the drive is saved in the file
// before it completes, so a process killed at any moment leaves the drive as
// it was before a command or as it was after it. One process has the file at
// a time.
//
// What is written to a drive is kept where that is asked for (Options.Contents,
// [Drive.KeepContents]), and can be changed below the drive's commands, as silent
// corruption does ([Drive.Raw]). A drive suffers faults by script ([Drive.Arm],
// package fault): they happen to commands and I/O queues alike, show in its logs,
// events and statuses as a real drive's do, and are saved with it.
//
// The package must not know who drives it: it imports no typed operations,
// and nothing above it imports it except programs and tests.
package sim
