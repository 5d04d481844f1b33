// A part of Kubernetes for tests: its API server, its controllers, and the store of the API server. There are no nodes:
// the tests start the containers of pods. `cargo xtask test` builds it.
package main

import (
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	server "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

const usage = `Usage: kubernetes store FOLDER
       kubernetes api-server [FLAGS of kube-apiserver]
       kubernetes controllers [FLAGS of kube-controller-manager]
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	command := os.Args[1]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	switch command {
	case "store":
		if err := serveStore(strings.Join(os.Args[1:], "")); err != nil {
			log.Fatal(err)
		}
	case "api-server":
		os.Exit(cli.Run(server.NewAPIServerCommand()))
	case "controllers":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
}

// Runs etcd in a folder, and prints the URL for its clients. It ends with a failure only.
func serveStore(folder string) error {
	configuration := embed.NewConfig()
	configuration.Dir = folder
	configuration.LogLevel = "error"
	// Tests need no data after a crash of the machine.
	configuration.UnsafeNoFsync = true
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	configuration.ListenClientUrls = []url.URL{anyPort}
	configuration.ListenPeerUrls = []url.URL{anyPort}
	etcd, err := embed.StartEtcd(configuration)
	if err != nil {
		return err
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	}
	fmt.Printf("http://%s\n", etcd.Clients[0].Addr())
	return <-etcd.Err()
}
