package penstock;

import org.apache.spark.deploy.DeployMessages$MasterStateResponse;
import org.apache.spark.deploy.DeployMessages$RequestMasterState$;
import org.apache.spark.deploy.master.ExecutorDesc;
import org.apache.spark.deploy.master.WorkerInfo;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/** The workers that are registered with the Master of this process. */
public class Workers {
  /** One line "id host port heartbeat memory" for each, then the ids of its executors; memory in MB. */
  public String list(RpcEnv master) {
    RpcEndpointRef endpoint = master.setupEndpointRef(master.address(), "Master");
    DeployMessages$MasterStateResponse state =
        (DeployMessages$MasterStateResponse)
            endpoint.askSync(
                DeployMessages$RequestMasterState$.MODULE$,
                ClassTag$.MODULE$.apply(DeployMessages$MasterStateResponse.class));
    StringBuilder lines = new StringBuilder();
    WorkerInfo[] workers = state.workers();
    for (int i = 0; i < workers.length; i++) {
      WorkerInfo worker = workers[i];
      if (!worker.isAlive()) {
        continue;
      }
      lines.append(worker.id()).append(' ').append(worker.host()).append(' ').append(worker.port());
      lines.append(' ').append(worker.lastHeartbeat()).append(' ').append(worker.memory());
      Iterator executors = worker.executors().valuesIterator();
      while (executors.hasNext()) {
        lines.append(' ').append(((ExecutorDesc) executors.next()).id());
      }
      lines.append('\n');
    }
    return lines.toString();
  }
}
