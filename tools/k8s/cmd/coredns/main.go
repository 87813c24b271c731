// Coredns is CoreDNS with the plugins that a cluster without an upstream needs. The full set needs the clients
// of every cloud and would double the modules to download.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() {
	// the order in which plugins see a query
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "log", "cache", "kubernetes", "template"}
}

func main() { coremain.Run() }
