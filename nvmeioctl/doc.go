// Package nvmeioctl holds the doors to an NVMe drive.
//
// [Device] controls a drive: one command in, one completion out. [IOQueue]
// moves its data: a batch in, a batch out. [Clock] tells the time of the world
// the drive lives in, which for a simulated drive is virtual. The kernel's
// passthrough, a simulated drive, a recording and every decorator (trace, dry
// run, guard, fault) are Devices like any other, so nothing above this package
// knows which one it holds.
//
// The package must not interpret what a drive answers: structures are decoded
// in nvmespec, typed operations are functions in admin.
package nvmeioctl
