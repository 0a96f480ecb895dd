// Command kubecp is a Kubernetes control plane in one binary, for tests and demonstrations on a machine without a
// container engine:
//
//	kubecp etcd               [etcd's flags]
//	kubecp apiserver          [kube-apiserver's flags]
//	kubecp scheduler          [kube-scheduler's flags]; includes the score plugin of operator/scheduler-plugin
//	kubecp controller-manager [kube-controller-manager's flags]
//	kubecp kwok               [kwok's flags]; stands in for the kubelets of nodes that exist only in the API
//	kubecp kwok-stages        prints kwok's own stages, for kwok --config
//
// Every component is the upstream command. They share most of their packages, so one binary compiles and links much
// faster than five.
//
// A component exits when the process with the ID in KUBECP_PARENT does, even if that process was killed.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	plugin "entrepot.dev/scheduler-plugin"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodeheartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

const (
	parentVariable = "KUBECP_PARENT"
	parentPause    = 500 * time.Millisecond
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: kubecp etcd|apiserver|scheduler|controller-manager|kwok|kwok-stages [flags]")
	}
	endWithParent()
	component := os.Args[1]
	// The components read os.Args themselves.
	os.Args = append([]string{os.Args[0]}, os.Args[2:]...)
	switch component {
	case "etcd":
		etcdmain.Main(os.Args)
	case "apiserver":
		run(apiserver.NewAPIServerCommand())
	case "scheduler":
		run(scheduler.NewSchedulerCommand(scheduler.WithPlugin(plugin.Name, plugin.New)))
	case "controller-manager":
		run(manager.NewControllerManagerCommand())
	case "kwok":
		runKwok()
	case "kwok-stages":
		printStages()
	default:
		fail("kubecp: unknown component " + component)
	}
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }

// runKwok does what kwok's own main function does.
func runKwok() {
	// cobra adds pflag.CommandLine to every root command, and component-base has added its own --version to it.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		fail(err.Error())
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		fail(err.Error())
	}
}

func printStages() {
	stages := []string{
		nodefast.DefaultNodeInit,
		nodeheartbeat.DefaultNodeHeartbeatWithLease,
		podfast.DefaultPodReady,
		podfast.DefaultPodComplete,
		podfast.DefaultPodDelete,
	}
	for i, stage := range stages {
		if i > 0 {
			fmt.Println("---")
		}
		fmt.Print(stage)
	}
}

// endWithParent ends this process soon after its parent has exited, for whatever reason.
func endWithParent() {
	text := os.Getenv(parentVariable)
	if text == "" {
		return
	}
	parent, err := strconv.Atoi(text)
	if err != nil {
		fail(fmt.Sprintf("kubecp: %s is not a process ID: %q", parentVariable, text))
	}
	go func() {
		for os.Getppid() == parent {
			time.Sleep(parentPause)
		}
		// SIGTERM first, for a graceful shutdown.
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(10 * time.Second)
		os.Exit(1)
	}()
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(2)
}
